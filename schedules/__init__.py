"""The schedules that ship with mlagen, one readable file a kernel and target."""
