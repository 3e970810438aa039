"""What a person sees: records become text, pictures and JSON documents, grouped as the commands are."""
