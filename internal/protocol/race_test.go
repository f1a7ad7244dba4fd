//go:build race

package protocol

const raced = true
