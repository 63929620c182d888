"""An engine in a few words of Python, as machine code: what the emulators' engines share."""
