package emulator

// Options that only the tests of this package need.
var (
	WithAccount           = withAccount
	WithContainerDeletion = withContainerDeletion
	WithMaxBody           = withMaxBody
)

// BreakFile makes every write to the file of a server fail.
func BreakFile(s *Server) { _ = s.state.file.log.Close() }
