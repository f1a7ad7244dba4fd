package emulator

import (
	"bytes"
	"encoding/xml"
	"errors"
	"net/http"
	"strings"
	"unicode"
)

// ErrCrashed is the error of every request of a [Transport] whose client has crashed.
var ErrCrashed = errors.New("emulator: the client has crashed")

// statuses holds the status of each code of the service that the emulator uses:
// https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes
var statuses = map[string]int{
	"ConditionHeadersNotSupported":          http.StatusBadRequest,
	"EmptyMetadataKey":                      http.StatusBadRequest,
	"ExceedsMaxBatchRequestCount":           http.StatusBadRequest,
	"ForbiddenByTest":                       http.StatusBadRequest,
	"InvalidHeaderValue":                    http.StatusBadRequest,
	"InvalidInput":                          http.StatusBadRequest,
	"InvalidMd5":                            http.StatusBadRequest,
	"InvalidMetadata":                       http.StatusBadRequest,
	"InvalidQueryParameterValue":            http.StatusBadRequest,
	"InvalidResourceName":                   http.StatusBadRequest,
	"Md5Mismatch":                           http.StatusBadRequest,
	"MetadataTooLarge":                      http.StatusBadRequest,
	"MissingRequiredHeader":                 http.StatusBadRequest,
	"MultipleConditionHeadersNotSupported":  http.StatusBadRequest,
	"OperationNotSupportedOnDirectory":      http.StatusBadRequest,
	"OutOfRangeInput":                       http.StatusBadRequest,
	"OutOfRangeQueryParameterValue":         http.StatusBadRequest,
	"UnsatisfiableCondition":                http.StatusBadRequest,
	"UnsupportedHeader":                     http.StatusBadRequest,
	"UnsupportedQueryParameter":             http.StatusBadRequest,
	"InvalidAuthenticationInfo":             http.StatusUnauthorized,
	"NoAuthenticationInformation":           http.StatusUnauthorized,
	"AuthenticationFailed":                  http.StatusForbidden,
	"AuthorizationPermissionMismatch":       http.StatusForbidden,
	"AuthorizationProtocolMismatch":         http.StatusForbidden,
	"AuthorizationResourceTypeMismatch":     http.StatusForbidden,
	"AuthorizationServiceMismatch":          http.StatusForbidden,
	"InsufficientAccountPermissions":        http.StatusForbidden,
	"UnauthorizedBlobOverwrite":             http.StatusForbidden,
	"BlobNotFound":                          http.StatusNotFound,
	"ContainerNotFound":                     http.StatusNotFound,
	"ResourceNotFound":                      http.StatusNotFound,
	"UnsupportedHttpVerb":                   http.StatusMethodNotAllowed,
	"BlobAlreadyExists":                     http.StatusConflict,
	"BlobArchived":                          http.StatusConflict,
	"BlobImmutableDueToLegalHold":           http.StatusConflict,
	"BlobImmutableDueToPolicy":              http.StatusConflict,
	"ContainerAlreadyExists":                http.StatusConflict,
	"ContainerBeingDeleted":                 http.StatusConflict,
	"LeaseAlreadyPresent":                   http.StatusConflict,
	"LeaseIdMismatchWithLeaseOperation":     http.StatusConflict,
	"LeaseIsBreakingAndCannotBeAcquired":    http.StatusConflict,
	"LeaseIsBrokenAndCannotBeRenewed":       http.StatusConflict,
	"LeaseNotPresentWithLeaseOperation":     http.StatusConflict,
	"ResourceTypeMismatch":                  http.StatusConflict,
	"MissingContentLengthHeader":            http.StatusLengthRequired,
	"ConditionNotMet":                       http.StatusPreconditionFailed,
	"LeaseIdMismatchWithContainerOperation": http.StatusPreconditionFailed,
	"LeaseIdMissing":                        http.StatusPreconditionFailed,
	"LeaseNotPresentWithBlobOperation":      http.StatusPreconditionFailed,
	"LeaseNotPresentWithContainerOperation": http.StatusPreconditionFailed,
	"RequestBodyTooLarge":                   http.StatusRequestEntityTooLarge,
	"InvalidRange":                          http.StatusRequestedRangeNotSatisfiable,
	"InternalError":                         http.StatusInternalServerError,
	"OperationTimedOut":                     http.StatusInternalServerError,
	"NotImplemented":                        http.StatusNotImplemented,
	"ServerBusy":                            http.StatusServiceUnavailable,
}

// message returns the words of a code as a sentence. The texts of the service say the same at more length.
func message(code string) string {
	var w strings.Builder
	for i, r := range code {
		if i > 0 && unicode.IsUpper(r) {
			w.WriteByte(' ')
			r = unicode.ToLower(r)
		}
		w.WriteRune(r)
	}
	return w.String() + "."
}

// fail returns the answer for a code of the table. It panics for another one.
func fail(code string) *answer { return failWith(code, "") }

// failWith is fail with a sentence that explains what is wrong.
func failWith(code, detail string) *answer {
	return errorAnswer(statusOf(code), code, strings.TrimSpace(message(code)+" "+detail), "")
}

// failAuthentication is fail with the detail that the service gives on failed authentications.
func failAuthentication(code, detail string) *answer {
	return errorAnswer(statusOf(code), code, message(code), detail)
}

func statusOf(code string) int {
	status, ok := statuses[code]
	if !ok {
		panic("emulator: no status of " + code)
	}
	return status
}

// errorAnswer returns an error in the form of the service. The detail is that of a failed authentication, or empty.
func errorAnswer(status int, code, message, detail string) *answer {
	var body bytes.Buffer
	body.WriteString(xmlProlog + "<Error>")
	writeElement(&body, "Code", code)
	writeElement(&body, "Message", message)
	if detail != "" {
		writeElement(&body, "AuthenticationErrorDetail", detail)
	}
	body.WriteString("</Error>")
	a := newAnswer(status)
	a.code = code
	a.header.Set("X-Ms-Error-Code", code)
	a.header.Set("Content-Type", "application/xml")
	a.body = body.Bytes()
	return a
}

// notModified returns the answer to a read whose condition says that the client already has the blob. It has
// no body.
func notModified() *answer {
	a := newAnswer(http.StatusNotModified)
	a.code = "ConditionNotMet"
	a.header.Set("X-Ms-Error-Code", "ConditionNotMet")
	return a
}

const xmlProlog = `<?xml version="1.0" encoding="utf-8"?>`

// escapeXML writes text as the content of an XML element. Characters that XML can't represent become U+FFFD.
func escapeXML(w *bytes.Buffer, text string) {
	// Writes to a bytes.Buffer don't fail.
	_ = xml.EscapeText(w, []byte(text))
}
