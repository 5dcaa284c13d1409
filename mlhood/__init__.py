"""Machine Learning under the hood: five graded notebooks and the package they import."""
