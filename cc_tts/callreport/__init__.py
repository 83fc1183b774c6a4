"""The report of one call as a page of HTML with one picture in it, which needs nothing from elsewhere."""
