"""What every provider answers."""


class Provider:
    """`name` heads the column; `family` is whose line and colour it has in the plots, where the best of a family stands
    for it. `compiles`: it compiles for each case, which other processes may do ahead. `slow`: it runs only where it is
    asked for by name."""

    name = family = ""
    compiles = slow = False

    def missing(self, device):
        """Why there is no such column on this device; None where there is one."""
        del device

    def runs(self, case):
        """Whether it has the operator at all."""
        raise NotImplementedError

    def function(self, case, inputs):
        """A function of the inputs that gives the output. What it keeps beside them counts as its memory."""
        raise NotImplementedError

    def version(self):
        """For the report's header; empty where there is nothing to say."""
        return ""


def import_error(load):
    """None, or in a line why a module does not load, whatever its import ran into."""
    try:
        load()
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None
