"""What each command's page says: a `Page` made of the typed results of the command."""
