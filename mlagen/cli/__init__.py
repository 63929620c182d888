"""The command line. One module a verb, loaded when its verb is called; no logic of its own."""
