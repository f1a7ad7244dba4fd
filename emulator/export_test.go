package emulator

// Options that only the tests of this package need.
var (
	WithAccount           = withAccount
	WithContainerDeletion = withContainerDeletion
	WithMaxBody           = withMaxBody
)
