package emulator_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"github.com/planvault/azblob/emulator"
)

// The answer is lost: the client gets an error although the blob exists.
func Example() {
	server := emulator.New(emulator.Options{})
	server.PutContainer("plans", nil)
	lost := emulator.On(emulator.PutBlob).Path("*-object.json").Nth(1).Do(emulator.LostAnswer())
	server.Inject(lost)

	client, err := azblob.NewClientFromConnectionString(server.ConnectionString(), &azblob.ClientOptions{
		ClientOptions: policy.ClientOptions{
			Transport: server.Transport(),
			Retry:     policy.RetryOptions{MaxRetries: -1},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	blob := client.ServiceClient().NewContainerClient("plans").NewBlockBlobClient("1-object.json")
	_, err = blob.Upload(context.Background(), streaming.NopCloser(strings.NewReader("{}")), nil)
	fmt.Println(err)

	fmt.Println(lost)
	for _, request := range server.Requests() {
		fmt.Println(request)
	}
	for b := range server.Blobs("plans") {
		fmt.Println(b.Name, string(b.Body))
	}
	// Output:
	// Put "http://blob.emulator.invalid/devstoreaccount1/plans/1-object.json": EOF
	// on PutBlob path "*-object.json" nth 1: lost answer
	// PutBlob plans/1-object.json -> 201 [lost answer]
	// 1-object.json {}
}
