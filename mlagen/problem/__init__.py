"""What problems are made of: fields, checked arrays, number formats, and what an oracle says."""
