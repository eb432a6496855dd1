/* copes: the command, as a program of its own. Python's package has it too. */
#include "tools/commands.h"

int main(int argc, char **argv)
{
    return command_copes(argc, argv);
}
