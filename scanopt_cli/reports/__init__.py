"""What commands report (`COMMAND_report`), the formats (`as_FORMAT`), and the texts of codes."""
