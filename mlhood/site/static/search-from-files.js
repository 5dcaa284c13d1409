// Opened as files, pages cannot be fetched for excerpts of what was found: the results stand without.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
