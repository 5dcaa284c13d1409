/* Read each input from a file of raw numbers, in the machine's byte order, and print the outputs, one number a line. */
#include <stdio.h>

#include "@PREFIX@.h"

@ARRAYS@

static int read_file(const char *name, void *data, size_t bytes)
{
    FILE *file = fopen(name, "rb");
    if (file == NULL) {
        fprintf(stderr, "%s: the file cannot be opened\n", name);
        return 1;
    }
    const int whole = fread(data, 1, bytes, file) == bytes && getc(file) == EOF;
    fclose(file);
    if (!whole)
        fprintf(stderr, "%s: the file has another length\n  expected: %lu bytes\n", name, (unsigned long)bytes);
    return !whole;
}

int main(int count, char **arguments)
{
    if (count != @COUNT@ + 1) {
        fprintf(stderr, "wrong number of arguments\n  expected: @COUNT@ files of raw numbers, one for each input\n");
        return 1;
    }
    (void)read_file; /* a model without inputs reads none */
    (void)arguments;
@READS@
    @PREFIX@_run(@ARGUMENTS@);
@PRINTS@
    return 0;
}
