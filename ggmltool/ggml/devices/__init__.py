"""What a device supports and how it allocates: tables of rules, a profile for each device."""
