"""What answers are shown with: text, tables, colors, drawings, pages, traces, JSON and CSV. It knows no question."""
