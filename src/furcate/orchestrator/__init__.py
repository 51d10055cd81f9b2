"""The story: from a request to its result, from an exchange to its branches."""
