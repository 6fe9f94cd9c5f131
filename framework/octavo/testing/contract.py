"""What every component promises, whatever its kind.

    C1  declaring it imports nothing heavy: no torch, numpy, pydantic or library that it wraps.
    C2  its class implements the interface: every method, called as the interface calls it.
    C3  its options refuse unknown keys and wrong values with the typed error, describe each field,
        and go through JSON unchanged.
    C4  two instances share no state.
    C5  building it changes nothing global: environment, working folder, random state, threads.
    C6  `close` twice is fine, where it has one.
    C7  what the declaration names is there: target, options, parameters, `why_not`.

Beside these, what a component declares it cannot do it refuses with `UnsupportedError`: each
kind's own promises say of what. Knows these sentences alone.
"""
