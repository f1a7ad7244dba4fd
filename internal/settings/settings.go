// Package settings has options of vaults for tests and programs.
package settings

import (
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob"
)

// Over returns the options of a vault that sends its requests over a transport.
func Over(t policy.Transporter) azblob.Options {
	return azblob.Options{ClientOptions: policy.ClientOptions{Transport: t}}
}
