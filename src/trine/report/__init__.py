"""What people read: terminal tables, HTML, comparison."""
