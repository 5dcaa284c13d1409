/* Functions of <math.h> in double precision, short rather than fast: series after a reduction of the argument.

   Accuracy: the relative error is below 1e-12 for normal results, of sin, cos and tan the absolute one for |x| up to
   1e4; so the functions of float are the exact result, rounded, but for rare ties. */
#include <stddef.h>
#include <stdint.h>

#include "math.h"

static const double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;
static const double half_pi_high = 1.57079632673412561417e+00, half_pi_low = 6.07710050650619224932e-11;
static const double half_pi = 1.57079632679489661923;

union bits {
    double real;
    uint64_t bits;
};

/* Two to the power of k, for normal results. */
static double power_of_two(int k)
{
    union bits u;
    u.bits = (uint64_t)(k + 1023) << 52;
    return u.real;
}

double exp(double x)
{
    if (x != x || x > 709.8)
        return x != x ? x : INFINITY;
    if (x < -745.2)
        return 0;
    const int k = (int)rint(x / (ln2_high + ln2_low));
    const double r = x - k * ln2_high - k * ln2_low; /* at most ln(2) / 2 */
    double sum = 1;
    for (int n = 14; n > 0; --n)
        sum = 1 + r / n * sum;
    return sum * power_of_two(k / 2) * power_of_two(k - k / 2);
}

double expm1(double x)
{
    if (!(fabs(x) < 0.5))
        return exp(x) - 1;
    double sum = 1;
    for (int n = 16; n > 1; --n)
        sum = 1 + x / n * sum;
    return x * sum;
}

double log(double x)
{
    union bits u;
    int exponent = 0;
    if (x != x || x < 0)
        return NAN;
    if (x == 0 || x == INFINITY)
        return x == 0 ? -INFINITY : INFINITY;
    if (x < 1e-300) { /* the exponent field of a subnormal number is 0 */
        x *= 18014398509481984.0;
        exponent = -54;
    }
    u.real = x;
    exponent += (int)(u.bits >> 52) - 1023;
    u.bits = (u.bits & 0xFFFFFFFFFFFFF) | ((uint64_t)1023 << 52);
    double m = u.real; /* x = m 2^exponent, and m is near 1 */
    if (m > 1.4142135623730951) {
        m /= 2;
        ++exponent;
    }
    const double s = (m - 1) / (m + 1);
    double sum = 0;
    for (int n = 23; n > 0; n -= 2)
        sum = 1.0 / n + s * s * sum;
    return exponent * ln2_high + (exponent * ln2_low + 2 * s * sum);
}

double log1p(double x)
{
    const double u = 1 + x;
    return u == 1 || u == INFINITY ? x : log(u) * (x / (u - 1));
}

double pow(double x, double y)
{
    if (y == 0 || x == 1)
        return 1;
    if (x > 0 || x != x || y != y)
        return x > 0 ? exp(y * log(x)) : NAN;
    const int whole = rint(y) == y, odd = whole && rint(y / 2) != y / 2;
    if (x == 0)
        return y > 0 ? 0 : INFINITY;
    return whole ? (odd ? -exp(y * log(-x)) : exp(y * log(-x))) : NAN;
}

double tanh(double x)
{
    const double t = expm1(2 * fabs(x)), y = fabs(x) > 20 ? 1 : t / (t + 2);
    return x < 0 ? -y : y;
}

double sinh(double x)
{
    const double t = expm1(fabs(x)), y = fabs(x) > 20 ? exp(fabs(x) - 0.6931471805599453) : (t + t / (t + 1)) / 2;
    return x < 0 ? -y : y;
}

double cosh(double x)
{
    return fabs(x) > 20 ? exp(fabs(x) - 0.6931471805599453) : (exp(x) + exp(-x)) / 2;
}

/* 2 / sqrt(pi) exp(-x^2) times the sum of 2^n x^(2n+1) / (1 3 5 ... (2n+1)), which are all of one sign. */
double erf(double x)
{
    if (x != x || fabs(x) > 6)
        return x != x ? x : x < 0 ? -1 : 1;
    double term = x, sum = x;
    for (int n = 1; fabs(term) > 1e-18 * fabs(sum); ++n) {
        term *= 2 * x * x / (2 * n + 1);
        sum += term;
    }
    return 1.1283791670955126 * exp(-x * x) * sum;
}

/* The sine of x + quarter pi / 2. */
static double shifted_sine(double x, int quarter)
{
    if (!(fabs(x) < 1e9))
        return NAN;
    const int k = (int)rint(x / half_pi);
    const double r = x - k * half_pi_high - k * half_pi_low; /* at most pi / 4 */
    const int turn = (int)(((unsigned)k + (unsigned)quarter) & 3);
    double sum = 1;
    for (int n = turn & 1 ? 17 : 18; n > 0; n -= 2)
        sum = 1 - r * r / (n * (n + 1)) * sum;
    const double y = turn & 1 ? sum : r * sum;
    return turn & 2 ? -y : y;
}

double sin(double x)
{
    return shifted_sine(x, 0);
}

double cos(double x)
{
    return shifted_sine(x, 1);
}

double tan(double x)
{
    return sin(x) / cos(x);
}

double atan(double x)
{
    if (fabs(x) > 1)
        return (x < 0 ? -half_pi : half_pi) - atan(1 / x);
    if (fabs(x) > 0.4142135623730951)
        return (x < 0 ? -half_pi : half_pi) / 2 + atan((fabs(x) - 1) / (fabs(x) + 1)) * (x < 0 ? -1 : 1);
    double sum = 0;
    for (int n = 41; n > 0; n -= 2)
        sum = 1.0 / n - x * x * sum;
    return x * sum;
}

double asin(double x)
{
    return fabs(x) == 1 ? x * half_pi : atan(x / sqrt((1 - x) * (1 + x)));
}

double acos(double x)
{
    return x > 0.5 ? 2 * asin(sqrt((1 - x) / 2)) : half_pi - asin(x);
}

double asinh(double x)
{
    const double a = fabs(x), y = log1p(a + a * a / (1 + sqrt(a * a + 1)));
    return x < 0 ? -y : y;
}

double acosh(double x)
{
    return log(x + sqrt((x - 1) * (x + 1)));
}

double atanh(double x)
{
    return log1p(2 * x / (1 - x)) / 2;
}

float powf(float x, float y)
{
    return (float)pow((double)x, (double)y);
}

#define OF_FLOAT(name)                \
    float name##f(float x)            \
    {                                 \
        return (float)name((double)x); \
    }
OF_FLOAT(exp)
OF_FLOAT(expm1)
OF_FLOAT(log)
OF_FLOAT(log1p)
OF_FLOAT(erf)
OF_FLOAT(sin)
OF_FLOAT(cos)
OF_FLOAT(tan)
OF_FLOAT(asin)
OF_FLOAT(acos)
OF_FLOAT(atan)
OF_FLOAT(sinh)
OF_FLOAT(cosh)
OF_FLOAT(tanh)
OF_FLOAT(asinh)
OF_FLOAT(acosh)
OF_FLOAT(atanh)

/* A compiler may call these for loops that fill or copy memory. */
void *memset(void *target, int value, size_t bytes)
{
    unsigned char *to = target;
    while (bytes--)
        *to++ = (unsigned char)value;
    return target;
}

void *memcpy(void *target, const void *source, size_t bytes)
{
    unsigned char *to = target;
    const unsigned char *from = source;
    while (bytes--)
        *to++ = *from++;
    return target;
}
