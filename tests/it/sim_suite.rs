//! Suites, what they are asked and what they say; and the table.
