/* The part of <math.h> that networks use, where there is no C library; see mathematics.c for its accuracy. */
#ifndef MATHEMATICS_H
#define MATHEMATICS_H

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

/* These are instructions of WebAssembly. */
#define fabs __builtin_fabs
#define fabsf __builtin_fabsf
#define sqrt __builtin_sqrt
#define sqrtf __builtin_sqrtf
#define ceil __builtin_ceil
#define ceilf __builtin_ceilf
#define floor __builtin_floor
#define floorf __builtin_floorf
#define rint __builtin_rint
#define rintf __builtin_rintf

#define DECLARE(name) double name(double x); float name##f(float x);
DECLARE(exp) DECLARE(expm1) DECLARE(log) DECLARE(log1p) DECLARE(erf)
DECLARE(sin) DECLARE(cos) DECLARE(tan) DECLARE(asin) DECLARE(acos) DECLARE(atan)
DECLARE(sinh) DECLARE(cosh) DECLARE(tanh) DECLARE(asinh) DECLARE(acosh) DECLARE(atanh)
double pow(double x, double y);
float powf(float x, float y);
#undef DECLARE

#endif
