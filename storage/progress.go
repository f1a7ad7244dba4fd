package storage

// Progress says how far a long operation is, such as [Purge]. Operations of this module call the function in their
// options after each plan or day, one call at a time. They wait for it, so it must not block for long.
type Progress struct {
	// Done is the number of plans or days that the operation has dealt with, including those that it left alone.
	Done int
	// Total is the number of plans or days to deal with, or 0 if it is unknown.
	Total int
}
