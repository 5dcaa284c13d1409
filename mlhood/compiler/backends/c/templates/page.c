/* What the page calls: memory for the input and the output, and the network. */
#include "@PREFIX@.h"

static float input[@INPUT@_LENGTH], output[@OUTPUT@_LENGTH];

float *page_input(void)
{
    return input;
}

float *page_output(void)
{
    return output;
}

void page_run(void)
{
    @PREFIX@_run(input, output);
}
