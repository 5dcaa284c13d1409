/* Read a picture from a PGM file, and print which class it is, with the probability of each.

   The picture may have any size: it is scaled to the network's, with its proportions, in the middle. A picture on
   light paper is inverted, as the network knows light strokes on a dark ground. */
#include <math.h>
#include <stdio.h>

#include "@PREFIX@.h"

#define HEIGHT @HEIGHT@
#define WIDTH @WIDTH@
#define CLASSES @OUTPUT@_LENGTH
#define LARGEST 30000 /* width or height of a picture */

/* What the network knows as black and as white. */
static const float black = @BLACK@, white = @WHITE@;

static float image[@INPUT@_LENGTH], scores[CLASSES];
static double light[HEIGHT][WIDTH], covered[HEIGHT][WIDTH];

static int refuse(const char *file, const char *what, const char *expected)
{
    fprintf(stderr, "%s: %s\n  expected: %s\n", file, what, expected);
    return 1;
}

/* Return the next number of a header or of a picture in text, -1 if there is none; # starts a comment. */
static long next_number(FILE *file)
{
    long number = 0;
    int c = getc(file);
    while (c == '#' || c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        if (c == '#') {
            while (c != '\n' && c != '\r' && c != EOF)
                c = getc(file);
        } else {
            c = getc(file);
        }
    }
    if (c < '0' || c > '9')
        return -1;
    for (; c >= '0' && c <= '9'; c = getc(file)) {
        if (number <= 99999)
            number = 10 * number + (c - '0');
    }
    if (c == '#')
        ungetc(c, file);
    return number; /* the one character of white space after it is read */
}

/* Return the next pixel, -1 at the end of the file. */
static long next_pixel(FILE *file, int text, long maximum)
{
    int high, low;
    if (text)
        return next_number(file);
    high = getc(file);
    if (maximum < 256 || high == EOF)
        return high == EOF ? -1 : high;
    low = getc(file);
    return low == EOF ? -1 : 256L * high + low;
}

static double overlap(double first, double last, int cell)
{
    const double low = first > cell ? first : cell, high = last < cell + 1 ? last : cell + 1;
    return high > low ? high - low : 0;
}

/* Add a pixel to the pixels of the network's picture that it covers. */
static void spread(double value, double top, double left, double size)
{
    for (int i = (int)floor(top); i < top + size && i < HEIGHT; ++i) {
        for (int j = (int)floor(left); j < left + size && j < WIDTH; ++j) {
            if (i < 0 || j < 0)
                continue;
            const double area = overlap(top, top + size, i) * overlap(left, left + size, j);
            light[i][j] += area * value;
            covered[i][j] += area;
        }
    }
}

/* Return NULL, or what is wrong with the picture. */
static const char *read_picture(FILE *file)
{
    const int p = getc(file), kind = getc(file);
    if (p != 'P' || (kind != '2' && kind != '5'))
        return "not a PGM picture";
    const long width = next_number(file), height = next_number(file), maximum = next_number(file);
    if (width < 1 || height < 1 || width > LARGEST || height > LARGEST)
        return "invalid width or height";
    if (maximum < 1 || maximum > 65535)
        return "invalid largest value";
    const double by_width = (double)WIDTH / (double)width, by_height = (double)HEIGHT / (double)height;
    const double size = by_width < by_height ? by_width : by_height;
    const double top = (HEIGHT - size * (double)height) / 2, left = (WIDTH - size * (double)width) / 2;
    double border = 0, border_count = 0;
    for (long row = 0; row < height; ++row) {
        for (long column = 0; column < width; ++column) {
            const long pixel = next_pixel(file, kind == '2', maximum);
            if (pixel < 0 || pixel > maximum)
                return pixel < 0 ? "the picture ends too early" : "a pixel is larger than the largest value";
            const double value = (double)pixel / (double)maximum;
            spread(value, top + size * (double)row, left + size * (double)column, size);
            if (row == 0 || row == height - 1 || column == 0 || column == width - 1) {
                border += value;
                ++border_count;
            }
        }
    }
    const int inverted = border > border_count / 2;
    for (int i = 0; i < HEIGHT; ++i) {
        for (int j = 0; j < WIDTH; ++j) {
            const double value = inverted ? covered[i][j] - light[i][j] : light[i][j];
            image[i * WIDTH + j] = black + (white - black) * (float)value;
        }
    }
    return NULL;
}

/* Return the class with the largest score, and make the scores probabilities. */
static int classify(void)
{
    int best = 0;
    for (int i = 1; i < CLASSES; ++i) {
        if (scores[i] > scores[best])
            best = i;
    }
#if @SOFTMAX@
    const float top = scores[best];
    float sum = 0;
    for (int i = 0; i < CLASSES; ++i) {
        scores[i] = expf(scores[i] - top);
        sum += scores[i];
    }
    for (int i = 0; i < CLASSES; ++i)
        scores[i] /= sum;
#endif
    return best;
}

int main(int count, char **arguments)
{
    if (count != 2)
        return refuse(count > 0 ? arguments[0] : "@PREFIX@", "one picture is needed", "the name of a PGM file");
    FILE *file = fopen(arguments[1], "rb");
    if (file == NULL)
        return refuse(arguments[1], "the file cannot be opened", "a PGM picture (P2 or P5)");
    const char *fault = read_picture(file);
    fclose(file);
    if (fault != NULL)
        return refuse(arguments[1], fault, "a PGM picture (P2 or P5) of 1 x 1 to 30000 x 30000 pixels of 0 to 65535 at most");
    @PREFIX@_run(image, scores);
    printf("%d\n", classify());
    for (int i = 0; i < CLASSES; ++i)
        printf("%d %.4f\n", i, (double)scores[i]);
    return 0;
}
