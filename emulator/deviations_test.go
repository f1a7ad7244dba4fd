package emulator_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/planvault/azblob/emulator"
)

// Sources in the documentation of the service.
const docs = "https://learn.microsoft.com/rest/api/storageservices/"

// deviations are all known differences. TestFidelity fails if it does not see one of them, so a fixed Azurite
// makes the table shorter.
var deviations = []*deviation{
	{
		what:   "x-ms-version: Azurite omits it in errors and in Set Container Metadata; the service always sends it",
		source: docs + "versioning-for-the-azure-storage-services",
		single: func(x *exchange, d difference) bool {
			return strings.HasSuffix(d.fact, "header X-Ms-Version") && d.azurite == "" &&
				(x.reply[inAzurite].status >= 300 || x.ask.op == emulator.SetContainerMetadata || x.ask.op == emulator.BatchDelete)
		},
	},
	{
		what:   "x-ms-blob-content-md5: Azurite sends it with every read; the service only with reads of a range",
		source: docs + "get-blob#response-headers",
		single: func(x *exchange, d difference) bool {
			return d.fact == "header X-Ms-Blob-Content-Md5" && d.emulator == "" &&
				d.azurite == x.reply[inEmulator].header.Get("Content-Md5") && x.reply[inAzurite].status == http.StatusOK
		},
	},
	{
		what:   "access tier change time: Azurite sends it always; the service only after a change",
		source: "https://github.com/Azure/Azurite/issues/820",
		single: onlyAzurite("", "X-Ms-Access-Tier-Change-Time", "AccessTierChangeTime"),
	},
	{
		what:   "empty properties in listings: Azurite omits them; the service sends an empty element for each",
		source: docs + "list-blobs#response-body",
		single: emptyInEmulator("Content-Encoding", "Content-Language", "Content-Disposition", "Cache-Control"),
	},
	{
		what:   "empty metadata in listings: Azurite omits it; the service sends an empty element if metadata is included",
		source: docs + "list-blobs#response-body",
		single: emptyInEmulator("Metadata"),
	},
	{
		what:   "Marker and MaxResults: Azurite has them in every listing; the service repeats what the client sent",
		source: docs + "list-blobs#response-body",
		single: func(x *exchange, d difference) bool {
			marker, _ := x.ask.param("marker")
			most, _ := x.ask.param("maxresults")
			return d.fact == "list Marker" && marker == "" && d.azurite == "none" && d.emulator == "" ||
				d.fact == "list MaxResults" && most == "" && d.azurite == "5000" && d.emulator == ""
		},
	},
	{
		what:   "service endpoint of a listing: Azurite omits the slash at the end",
		source: docs + "list-blobs#response-body",
		single: func(_ *exchange, d difference) bool {
			return d.fact == "list @ServiceEndpoint" && d.azurite+"/" == d.emulator
		},
	},
	{
		what:   "If-Match of a read of a missing blob: Azurite 412 ConditionNotMet; the service 404 BlobNotFound",
		source: "https://github.com/Azure/Azurite/issues/2751",
		whole: func(x *exchange) bool {
			return x.reads() && x.ask.has("If-Match") != "" && x.are("412 ConditionNotMet", "404 BlobNotFound")
		},
	},
	{
		what:   "If-None-Match: * of a delete: Azurite ignores it; the service 412 ConditionNotMet",
		source: docs + "specifying-conditional-headers-for-blob-service-operations#supported-conditional-headers",
		whole: func(x *exchange) bool {
			return x.ask.has("If-None-Match") == "*" &&
				x.ask.op == emulator.DeleteBlob && x.are("202", "412 ConditionNotMet")
		},
		single: func(x *exchange, d difference) bool {
			n, ok := itemOf(d.fact)
			if !ok || n >= len(x.ask.items) {
				return false
			}
			for _, h := range x.ask.items[n].header {
				if h.name == "If-None-Match" && h.value == both("*") {
					status := fmt.Sprintf("item %d status", n)
					return x.facts[inAzurite][status] == "202" && x.facts[inEmulator][status] == "412"
				}
			}
			return false
		},
	},
	{
		what:   "conditions that a container operation does not support: Azurite ignores them; the service 400",
		source: docs + "specifying-conditional-headers-for-blob-service-operations#operations-supporting-conditional-headers",
		whole: func(x *exchange) bool {
			a := x.ask
			unknown := a.has("If-Match") != "" || a.has("If-None-Match") != "" ||
				a.op == emulator.SetContainerMetadata && a.has("If-Unmodified-Since") != ""
			return unknown && slices.Contains([]emulator.Op{emulator.SetContainerMetadata, emulator.DeleteContainer, emulator.LeaseContainer}, a.op) &&
				x.outcome(inEmulator) == "400 ConditionHeadersNotSupported"
		},
	},
	{
		what:   "name of a deleted container: Azurite frees it at once; the service 409 ContainerBeingDeleted for 30 s",
		source: docs + "delete-container#remarks",
		whole:  answers("201", "409 ContainerBeingDeleted", emulator.CreateContainer),
	},
	{
		what:   "media type of 304: Azurite sends one without a body; the service does not",
		source: "https://github.com/Azure/azure-sdk-for-net/tree/main/sdk/storage/Azure.Storage.Blobs (recorded answers to GetProperties whose conditions fail)",
		single: func(x *exchange, d difference) bool {
			return x.are("304 ConditionNotMet", "304 ConditionNotMet") && d.fact == "header Content-Type" && d.azurite == "application/xml" && d.emulator == ""
		},
	},
	{
		what:   "metadata above 8 KiB: Azurite accepts 16 KiB; the service 400 MetadataTooLarge",
		source: docs + "setting-and-retrieving-properties-and-metadata-for-blob-resources#metadata-headers; " + docs + "common-rest-api-error-codes",
		whole: func(x *exchange) bool {
			return x.outcome(inEmulator) == "400 MetadataTooLarge" && x.outcome(inAzurite) != x.outcome(inEmulator) && x.ask.metadataSize() > 8<<10
		},
	},
	{
		what:   "metadata without a name: Azurite ignores it; the service 400 EmptyMetadataKey",
		source: docs + "common-rest-api-error-codes",
		whole:  func(x *exchange) bool { return x.ask.sends("x-ms-meta-") && x.are("201", "400 EmptyMetadataKey") },
	},
	{
		what:   "case of metadata names: Azurite and the service keep it; the emulator can't, because net/http changes it",
		source: docs + "naming-and-referencing-containers--blobs--and-metadata#metadata-names",
		single: func(_ *exchange, d difference) bool {
			_, name, ok := strings.Cut(d.fact, " Metadata/")
			return ok && (d.emulator == "" && name != strings.ToLower(name) || d.azurite == "" && name == strings.ToLower(name))
		},
	},
	{
		what:   "names of more than 1,024 characters: Azurite accepts them; the service 400 InvalidResourceName",
		source: docs + "naming-and-referencing-containers--blobs--and-metadata#blob-names",
		whole: func(x *exchange) bool {
			return len([]rune(x.ask.blob)) > 1024 && x.outcome(inEmulator) == "400 InvalidResourceName"
		},
	},
	{
		what:   "names that XML can't represent: Azurite fails the listing with 500; the service encodes them",
		source: docs + "list-blobs#remarks (version 2021-02-12)",
		whole:  answers("500", "200", emulator.ListBlobs),
	},
	{
		what:   "date of a signed request: Azurite ignores it; the service 403 if it is missing or 15 minutes off",
		source: docs + "authorize-with-shared-key#specifying-the-date-header",
		whole: func(x *exchange) bool {
			at, err := http.ParseTime(x.ask.date)
			return x.ask.date != "" && (err != nil || time.Since(at).Abs() > 15*time.Minute) && x.outcome(inEmulator) == "403 AuthenticationFailed"
		},
	},
	{
		what:   "code of a bad signature: Azurite AuthorizationFailure; the service AuthenticationFailed",
		source: docs + "common-rest-api-error-codes; https://github.com/Azure/azure-storage-blob-go/issues/24",
		whole: func(x *exchange) bool {
			bad := x.ask.key != "" || x.ask.tamper != nil
			for _, h := range x.ask.header {
				bad = bad || h.value != both(strings.Map(ascii, h.value[inEmulator]))
			}
			return bad && x.are("403 AuthorizationFailure", "403 AuthenticationFailed")
		},
	},
	{
		what:   "no authorization: Azurite 403 AuthorizationFailure; the service 401 NoAuthenticationInformation",
		source: docs + "common-rest-api-error-codes",
		whole: func(x *exchange) bool {
			return x.ask.tamper != nil && x.are("403 AuthorizationFailure", "401 NoAuthenticationInformation")
		},
		single: func(x *exchange, d difference) bool {
			n, ok := itemOf(d.fact)
			return ok && n < len(x.ask.items) && x.ask.items[n].unsigned
		},
	},
	{
		what:   "malformed or future x-ms-version: Azurite ignores it (--skipApiVersionCheck); the service 400",
		source: docs + "versioning-for-the-azure-storage-services",
		whole: func(x *exchange) bool {
			_, err := time.Parse(time.DateOnly, x.ask.version)
			return x.ask.version != "" && (err != nil || x.ask.version > "2026-12-06") && x.outcome(inEmulator) == "400 InvalidHeaderValue"
		},
	},
	{
		what:   "x-ms-version of the answer: Azurite sends its newest; the service the version of the request",
		source: docs + "versioning-for-the-azure-storage-services",
		single: func(x *exchange, d difference) bool {
			return d.fact == "header X-Ms-Version" && d.azurite == serviceVersion && x.ask.version != "" &&
				(d.emulator == x.ask.version || x.ask.version == "none")
		},
	},
	{
		what:   "x-ms-client-request-id: Azurite omits it in errors; the service always sends it back",
		source: docs + "get-blob#response-headers",
		single: func(x *exchange, d difference) bool {
			return d.fact == "header X-Ms-Client-Request-Id" && d.azurite == "" && x.reply[inAzurite].status >= 300 &&
				d.emulator == x.ask.has("x-ms-client-request-id")
		},
	},
	{
		what:   "400 without a code: Azurite sends no body if its parser refuses a request; the service says what is wrong",
		source: docs + "status-and-error-codes2",
		whole: func(x *exchange) bool {
			return x.outcome(inAzurite) == "400" && len(x.reply[inAzurite].body) == 0 && strings.HasPrefix(x.outcome(inEmulator), "400 ")
		},
	},
	{
		what:   "malformed dates: Azurite accepts what JavaScript accepts, and ignores the rest; the service 400",
		source: docs + "representation-of-date-time-values-in-headers",
		whole: func(x *exchange) bool {
			for _, name := range []string{"If-Modified-Since", "If-Unmodified-Since"} {
				value := x.ask.has(name)
				if _, err := http.ParseTime(value); value != "" && err != nil {
					return x.outcome(inEmulator) == "400 InvalidHeaderValue"
				}
			}
			return false
		},
	},
	{
		what:   "a range that begins at the end: Azurite 206 without a byte; the service 416 InvalidRange",
		source: docs + "specifying-the-range-header-for-blob-service-operations",
		whole:  answers("206", "416 InvalidRange", emulator.GetBlob),
	},
	{
		what:   "malformed ranges: Azurite answers with parts or with NaN; the emulator ignores them, as HTTP says",
		source: docs + "specifying-the-range-header-for-blob-service-operations#range-header-formats",
		whole: func(x *exchange) bool {
			spec := x.ask.has("x-ms-range")
			if spec == "" {
				spec = x.ask.has("Range")
			}
			return x.ask.op == emulator.GetBlob && spec != "" && !goodRange.MatchString(spec) && x.outcome(inEmulator) == "200"
		},
	},
	{
		what:   "service properties: Azurite has logging, metrics and a web site; the emulator has none",
		source: docs + "get-blob-service-properties#response-body",
		single: func(x *exchange, d difference) bool {
			return x.ask.op == emulator.GetServiceProperties && strings.HasPrefix(d.fact, "list ")
		},
	},
	{
		what:   "delimiters of several characters: Azurite cuts prefixes after the first; the service accepts any string",
		source: docs + "list-blobs#uri-parameters",
		single: func(x *exchange, d difference) bool {
			delimiter, _ := x.ask.param("delimiter")
			return len(delimiter) > 1 && (d.fact == "list prefixes" || d.fact == "list NextMarker")
		},
	},
	{
		what:   "fractions of results: Azurite accepts maxresults=1.5; the service 400 InvalidQueryParameterValue",
		source: docs + "list-blobs#uri-parameters",
		whole: func(x *exchange) bool {
			most, _ := x.ask.param("maxresults")
			return strings.Contains(most, ".") && x.are("200", "400 InvalidQueryParameterValue")
		},
	},
	{
		what:   "foreign markers: Azurite accepts any name; the emulator refuses markers that it did not issue",
		source: docs + "list-blobs#uri-parameters",
		whole: func(x *exchange) bool {
			marker, _ := x.ask.param("marker")
			return marker != "" && x.are("200", "400 InvalidQueryParameterValue")
		},
	},
	{
		what:   "names that are added between two pages: Azurite's marker is the last name listed; the service's the next name",
		source: docs + "list-containers2#sample-response-body",
		whole: func(x *exchange) bool {
			marker, _ := x.ask.param("marker")
			if x.ask.op != emulator.ListBlobs || marker == "" || !x.are("200", "200") {
				return false
			}
			next := emulatorMarker(marker)
			root, err := parseXML(x.reply[inAzurite].body)
			if err != nil {
				return false
			}
			for _, entry := range root.child("Blobs").Children {
				if name := entry.child("Name").Text; name < next && !strings.HasPrefix(next, name) {
					return true
				}
			}
			return false
		},
	},
	{
		what:   "kind of account: Azurite is read-access geo-redundant; the emulator is locally redundant",
		source: docs + "get-account-information#response-headers",
		single: func(_ *exchange, d difference) bool {
			return d.fact == "header X-Ms-Sku-Name" && d.azurite == "Standard_RAGRS" && d.emulator == "Standard_LRS"
		},
	},
	{
		what:   "break periods outside 0 to 60 seconds: Azurite 500 or 202; the service 400 InvalidHeaderValue",
		source: docs + "lease-container#request-headers",
		whole: func(x *exchange) bool {
			return x.ask.has("x-ms-lease-break-period") != "" && (x.are("500", "400 InvalidHeaderValue") || x.are("202", "400 InvalidHeaderValue"))
		},
	},
	{
		what:   "lease IDs that are not GUIDs: Azurite accepts any text; the service 400 InvalidHeaderValue",
		source: docs + "lease-container#request-headers",
		whole: func(x *exchange) bool {
			return x.ask.has("x-ms-proposed-lease-id") == "lease" && x.are("201", "400 InvalidHeaderValue")
		},
	},
	{
		what:   "case of lease IDs: Azurite compares texts in actions on the lease; the service compares GUIDs",
		source: docs + "lease-container#request-headers",
		whole:  answers("409 LeaseIdMismatchWithLeaseOperation", "200", emulator.LeaseContainer),
	},
	{
		what:   "renewal of an expired lease by another ID: Azurite renews it; the service 409",
		source: docs + "lease-container#remarks",
		whole:  answers("200", "409 LeaseIdMismatchWithLeaseOperation", emulator.LeaseContainer),
	},
	{
		what:   "incomplete lease requests: Azurite takes them for Create Container; the service 400",
		source: docs + "lease-container#request-headers",
		whole: func(x *exchange) bool {
			return x.ask.op == emulator.LeaseContainer && (x.are("409 ContainerAlreadyExists", "400 MissingRequiredHeader") ||
				x.are("409 ContainerAlreadyExists", "400 InvalidHeaderValue"))
		},
	},
	{
		what:   "requests that the emulator does not support: it refuses them; Azurite may execute or ignore them",
		source: "the emulator's package comment",
		whole: func(x *exchange) bool {
			switch strings.TrimLeft(x.outcome(inEmulator), "0123456789 ") {
			case "NotImplemented", "UnsupportedHeader", "UnsupportedQueryParameter", "UnsupportedHttpVerb":
				return x.outcome(inAzurite) != x.outcome(inEmulator)
			case "InvalidResourceName":
				return strings.HasPrefix(x.ask.container, "$")
			case "InvalidHeaderValue":
				return x.ask.has("x-ms-access-tier") == "Archive"
			default:
				return false
			}
		},
	},
}

// answers explains these outcomes of an operation.
func answers(azurite, emulated string, op emulator.Op) func(*exchange) bool {
	return func(x *exchange) bool { return x.ask.op == op && x.are(azurite, emulated) }
}

// onlyAzurite explains headers, and properties in listings, that the emulator does not send in answers to an
// operation, or to any.
func onlyAzurite(op emulator.Op, names ...string) func(*exchange, difference) bool {
	return func(x *exchange, d difference) bool {
		return (op == "" || x.ask.op == op) && d.emulator == "" && slices.Contains(names, d.fact[strings.LastIndexAny(d.fact, " /")+1:])
	}
}

// emptyInEmulator explains elements of a listing that Azurite leaves out.
func emptyInEmulator(names ...string) func(*exchange, difference) bool {
	return func(_ *exchange, d difference) bool {
		return d.azurite == "" && d.emulator == `""` && slices.Contains(names, d.fact[strings.LastIndexAny(d.fact, " /")+1:])
	}
}

// ascii removes everything that is not ASCII.
func ascii(r rune) rune {
	if r > '~' {
		return -1
	}
	return r
}

var goodRange = regexp.MustCompile(`^bytes=[0-9]+-[0-9]*$`)

// reads reports whether the request reads a blob or its properties.
func (x *exchange) reads() bool {
	switch x.ask.op {
	case emulator.GetBlob, emulator.HeadBlob:
		return true
	default:
		return false
	}
}

// itemOf returns the number of the item of a batch that a fact is about.
func itemOf(fact string) (n int, ok bool) {
	_, err := fmt.Sscanf(fact, "item %d ", &n)
	return n, err == nil
}

// emulatorMarker returns the name that a marker of the emulator stands for.
func emulatorMarker(marker string) string {
	name, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(marker, "2!"))
	if err != nil {
		return ""
	}
	return string(name)
}
