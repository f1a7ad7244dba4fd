// Package settings puts the options of a vault together, for tests and programs that open vaults in layers.
package settings

import (
	"reflect"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob"
)

// Over returns the options of a vault that sends its requests over a transport.
func Over(t policy.Transporter) azblob.Options {
	return azblob.Options{ClientOptions: policy.ClientOptions{Transport: t}}
}

// Merge returns the options with the fields that any of them sets. The last one wins.
func Merge(all ...azblob.Options) (merged azblob.Options) {
	for _, o := range all {
		merge(reflect.ValueOf(&merged).Elem(), reflect.ValueOf(o))
	}
	return merged
}

func merge(into, from reflect.Value) {
	for i := range from.NumField() {
		switch f := from.Field(i); {
		case f.IsZero():
		case from.Type().Field(i).Anonymous:
			merge(into.Field(i), f)
		default:
			into.Field(i).Set(f)
		}
	}
}
