"""Wine that fills a glass."""
