"""Grade one submission for a platform that calls us, without a gradebook.

In: the notebook in Gradescope's container or in a workflow of GitHub Classroom.
Out: that platform's result, whatever happens; the submission is isolated as well as the machine allows.
"""
