"""What each verb does: commands and `mlagen.build` parse and print, and call these."""
