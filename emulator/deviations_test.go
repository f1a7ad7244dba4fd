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
		what:   "no x-ms-version in errors: Azurite leaves x-ms-version out of errors and of Set Container Metadata; the service names the version in every answer",
		source: docs + "versioning-for-the-azure-storage-services",
		single: func(x *exchange, d difference) bool {
			return strings.HasSuffix(d.fact, "header X-Ms-Version") && d.azurite == "" &&
				(x.reply[inAzurite].status >= 300 || x.ask.op == emulator.SetContainerMetadata || x.ask.op == emulator.BatchDelete)
		},
	},
	{
		what:   "x-ms-blob-content-md5 without a range: Azurite sends it with every read; the service sends it with reads of a range, where Content-MD5 can't be the blob's",
		source: docs + "get-blob#response-headers",
		single: func(x *exchange, d difference) bool {
			return d.fact == "header X-Ms-Blob-Content-Md5" && d.emulator == "" &&
				d.azurite == x.reply[inEmulator].header.Get("Content-Md5") && x.reply[inAzurite].status == http.StatusOK
		},
	},
	{
		what:   "access tier change time: Azurite tells when the tier was changed, though nobody changed it; the service does not tell before somebody does",
		source: "https://github.com/Azure/Azurite/issues/820",
		single: onlyAzurite("", "X-Ms-Access-Tier-Change-Time", "AccessTierChangeTime"),
	},
	{
		what:   "empty properties in listings: Azurite leaves out the content properties that a blob does not have; the service has an empty element for each",
		source: docs + "list-blobs#response-body",
		single: emptyInEmulator("Content-Encoding", "Content-Language", "Content-Disposition", "Cache-Control"),
	},
	{
		what:   "no metadata in listings: Azurite leaves out the element of what has none; the service has an empty one if metadata is included",
		source: docs + "list-blobs#response-body",
		single: emptyInEmulator("Metadata"),
	},
	{
		what:   "Marker and MaxResults of the client: Azurite says them in every listing; the service repeats them if the client said them",
		source: docs + "list-blobs#response-body",
		single: func(x *exchange, d difference) bool {
			marker, _ := x.ask.param("marker")
			most, _ := x.ask.param("maxresults")
			return d.fact == "list Marker" && marker == "" && d.azurite == "none" && d.emulator == "" ||
				d.fact == "list MaxResults" && most == "" && d.azurite == "5000" && d.emulator == ""
		},
	},
	{
		what:   "slash of the service endpoint: Azurite names the account in a listing without a slash at the end; the service with one",
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
		what:   "If-None-Match: * of a write other than Put Blob: Azurite lets it do; the service 412 ConditionNotMet",
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
		what:   "conditions that containers do not have: Azurite does not look at them; the service 400 ConditionHeadersNotSupported: Delete Container and Lease Container know conditions on time alone, Set Container Metadata only If-Modified-Since",
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
		what:   "a container that was just deleted: Azurite can be made again at once; the service 409 ContainerBeingDeleted for 30 s at least",
		source: docs + "delete-container#remarks",
		whole:  answers("201", "409 ContainerBeingDeleted", emulator.CreateContainer),
	},
	{
		what:   "media type of 304: Azurite sends Content-Type: application/xml without a body; the service sends neither",
		source: "https://github.com/Azure/azure-sdk-for-net/tree/main/sdk/storage/Azure.Storage.Blobs (recorded answers to GetProperties whose conditions fail)",
		single: func(x *exchange, d difference) bool {
			return x.are("304 ConditionNotMet", "304 ConditionNotMet") && d.fact == "header Content-Type" && d.azurite == "application/xml" && d.emulator == ""
		},
	},
	{
		what:   "8 KiB of metadata: Azurite takes as much as its HTTP headers hold, 16 KiB; what else is wrong is said instead; the service 400 MetadataTooLarge",
		source: docs + "setting-and-retrieving-properties-and-metadata-for-blob-resources#metadata-headers; " + docs + "common-rest-api-error-codes",
		whole: func(x *exchange) bool {
			return x.outcome(inEmulator) == "400 MetadataTooLarge" && x.outcome(inAzurite) != x.outcome(inEmulator) && x.ask.metadataSize() > 8<<10
		},
	},
	{
		what:   "metadata without a name: Azurite does not look at it; the service 400 EmptyMetadataKey",
		source: docs + "common-rest-api-error-codes",
		whole:  func(x *exchange) bool { return x.ask.sends("x-ms-meta-") && x.are("201", "400 EmptyMetadataKey") },
	},
	{
		what:   "case of metadata names: Azurite shows names in listings as they were written; the service does so, too; the emulator shows them in lower case, since Go's net/http does not keep how they were written",
		source: docs + "naming-and-referencing-containers--blobs--and-metadata#metadata-names",
		single: func(_ *exchange, d difference) bool {
			_, name, ok := strings.Cut(d.fact, " Metadata/")
			return ok && (d.emulator == "" && name != strings.ToLower(name) || d.azurite == "" && name == strings.ToLower(name))
		},
	},
	{
		what:   "names longer than 1,024 characters: Azurite takes them; the service 400 InvalidResourceName",
		source: docs + "naming-and-referencing-containers--blobs--and-metadata#blob-names",
		whole: func(x *exchange) bool {
			return len([]rune(x.ask.blob)) > 1024 && x.outcome(inEmulator) == "400 InvalidResourceName"
		},
	},
	{
		what:   "names that XML can't carry: Azurite fails the listing with 500; the service encodes them",
		source: docs + "list-blobs#remarks (version 2021-02-12)",
		whole:  answers("500", "200", emulator.ListBlobs),
	},
	{
		what:   "date of a signed request: Azurite does not look at it, nor miss it; the service 403 AuthenticationFailed if it is missing, or 15 minutes off",
		source: docs + "authorize-with-shared-key#specifying-the-date-header",
		whole: func(x *exchange) bool {
			at, err := http.ParseTime(x.ask.date)
			return x.ask.date != "" && (err != nil || time.Since(at).Abs() > 15*time.Minute) && x.outcome(inEmulator) == "403 AuthenticationFailed"
		},
	},
	{
		what:   "code of a bad signature: Azurite 403 AuthorizationFailure, which is about rights; the service 403 AuthenticationFailed",
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
		what:   "no authorization: Azurite 403 AuthorizationFailure; the service 401 NoAuthenticationInformation, with WWW-Authenticate",
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
		what:   "malformed and future x-ms-version: Azurite does not look at it, as it was started with --skipApiVersionCheck; the service 400 InvalidHeaderValue",
		source: docs + "versioning-for-the-azure-storage-services",
		whole: func(x *exchange) bool {
			_, err := time.Parse(time.DateOnly, x.ask.version)
			return x.ask.version != "" && (err != nil || x.ask.version > "2026-12-06") && x.outcome(inEmulator) == "400 InvalidHeaderValue"
		},
	},
	{
		what:   "x-ms-version of the answer: Azurite always names its own newest; the service names the one that the request was done by",
		source: docs + "versioning-for-the-azure-storage-services",
		single: func(x *exchange, d difference) bool {
			return d.fact == "header X-Ms-Version" && d.azurite == serviceVersion && x.ask.version != "" &&
				(d.emulator == x.ask.version || x.ask.version == "none")
		},
	},
	{
		what:   "x-ms-client-request-id in errors: Azurite leaves it out of errors; the service sends it back in every answer",
		source: docs + "get-blob#response-headers",
		single: func(x *exchange, d difference) bool {
			return d.fact == "header X-Ms-Client-Request-Id" && d.azurite == "" && x.reply[inAzurite].status >= 300 &&
				d.emulator == x.ask.has("x-ms-client-request-id")
		},
	},
	{
		what:   "400 without a code: Azurite answers what its parser refuses with an empty 400; the service says what is wrong",
		source: docs + "status-and-error-codes2",
		whole: func(x *exchange) bool {
			return x.outcome(inAzurite) == "400" && len(x.reply[inAzurite].body) == 0 && strings.HasPrefix(x.outcome(inEmulator), "400 ")
		},
	},
	{
		what:   "dates that are none: Azurite takes whatever JavaScript takes for a date, and ignores the rest; the service 400 InvalidHeaderValue",
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
		what:   "a range that begins at the end: Azurite 206 without a byte, with an impossible Content-Range; the service 416 InvalidRange",
		source: docs + "specifying-the-range-header-for-blob-service-operations",
		whole:  answers("206", "416 InvalidRange", emulator.GetBlob),
	},
	{
		what:   "a range that is none: Azurite reckons with what is no number, up to sending NaN as the length, and takes any unit for bytes; the service knows two forms of ranges; the emulator ignores all others, as Azurite does where it notices",
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
		what:   "service properties: Azurite has settings for logging, metrics and a web site; the service has those of the account; the emulator has none of these things",
		source: docs + "get-blob-service-properties#response-body",
		single: func(x *exchange, d difference) bool {
			return x.ask.op == emulator.GetServiceProperties && strings.HasPrefix(d.fact, "list ")
		},
	},
	{
		what:   "delimiters of several characters: Azurite cuts prefixes after the first of them; the service takes any string for a delimiter",
		source: docs + "list-blobs#uri-parameters",
		single: func(x *exchange, d difference) bool {
			delimiter, _ := x.ask.param("delimiter")
			return len(delimiter) > 1 && (d.fact == "list prefixes" || d.fact == "list NextMarker")
		},
	},
	{
		what:   "fractions of results: Azurite takes maxresults=1.5; the service 400 InvalidQueryParameterValue",
		source: docs + "list-blobs#uri-parameters",
		whole: func(x *exchange) bool {
			most, _ := x.ask.param("maxresults")
			return strings.Contains(most, ".") && x.are("200", "400 InvalidQueryParameterValue")
		},
	},
	{
		what:   "markers that are none: Azurite takes any name for a marker; the service gives out opaque markers; the emulator refuses what it did not give out",
		source: docs + "list-blobs#uri-parameters",
		whole: func(x *exchange) bool {
			marker, _ := x.ask.param("marker")
			return marker != "" && x.are("200", "400 InvalidQueryParameterValue")
		},
	},
	{
		what:   "names that come between two pages: Azurite marks the last name that it has shown, so that the next page has what was written behind it meanwhile; the service marks the first name that it has not shown",
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
		what:   "kind of account: Azurite is read-access geo-redundant; the service depends; the emulator is a locally redundant account",
		source: docs + "get-account-information#response-headers",
		single: func(_ *exchange, d difference) bool {
			return d.fact == "header X-Ms-Sku-Name" && d.azurite == "Standard_RAGRS" && d.emulator == "Standard_LRS"
		},
	},
	{
		what:   "break periods: Azurite 500 for a negative one, and takes one of 61 seconds; the service 400 InvalidHeaderValue: a period is 0 to 60 seconds",
		source: docs + "lease-container#request-headers",
		whole: func(x *exchange) bool {
			return x.ask.has("x-ms-lease-break-period") != "" && (x.are("500", "400 InvalidHeaderValue") || x.are("202", "400 InvalidHeaderValue"))
		},
	},
	{
		what:   "lease IDs that are no GUIDs: Azurite takes any text; the service 400 InvalidHeaderValue",
		source: docs + "lease-container#request-headers",
		whole: func(x *exchange) bool {
			return x.ask.has("x-ms-proposed-lease-id") == "lease" && x.are("201", "400 InvalidHeaderValue")
		},
	},
	{
		what:   "case of lease IDs: Azurite compares the texts in actions on the lease, and the GUIDs in other requests; the service compares the GUIDs",
		source: docs + "lease-container#request-headers",
		whole:  answers("409 LeaseIdMismatchWithLeaseOperation", "200", emulator.LeaseContainer),
	},
	{
		what:   "renewal of another's lease that has run out: Azurite renews it; the service 409 LeaseIdMismatchWithLeaseOperation",
		source: docs + "lease-container#remarks",
		whole:  answers("200", "409 LeaseIdMismatchWithLeaseOperation", emulator.LeaseContainer),
	},
	{
		what:   "lease requests that lack something: Azurite takes them for the creation of a container; the service 400 MissingRequiredHeader or InvalidHeaderValue",
		source: docs + "lease-container#request-headers",
		whole: func(x *exchange) bool {
			return x.ask.op == emulator.LeaseContainer && (x.are("409 ContainerAlreadyExists", "400 MissingRequiredHeader") ||
				x.are("409 ContainerAlreadyExists", "400 InvalidHeaderValue"))
		},
	},
	{
		what:   "requests that the emulator refuses: Azurite does some of them, ignores some headers and parameters, and refuses others without a code; the service has more than the emulator, which refuses what it does not know: see the package comment",
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
