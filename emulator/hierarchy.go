package emulator

import "strings"

// This file has what differs on accounts with a hierarchical namespace (Azure Data Lake Storage), as far as the
// documentation or an issue that quotes the service says so.

// folder is the metadata that marks a directory, with the value "true". It is how a directory is stored.
// https://learn.microsoft.com/azure/storage/blobs/data-lake-storage-known-issues,
// https://github.com/microsoft/AzureStorageExplorer/issues/2466
const folder = "hdi_isfolder"

func (b *blob) directory() bool {
	for name, value := range b.Metadata.all() {
		if name == folder {
			return value == "true" && len(b.Body) == 0
		}
	}
	return false
}

// ancestors returns the names of the directories above a blob, the highest first.
func ancestors(name string) (list []string) {
	for i := range len(name) {
		if name[i] == '/' {
			list = append(list, name[:i])
		}
	}
	return list
}

// checkPath refuses the write of a blob that is a directory, or lies below a blob. The conflict is clear, but
// its code is not documented. The emulator takes the general one of
// https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes.
func (s *Server) checkPath(ct *container, name string) *answer {
	if !s.hierarchical {
		return nil
	}
	if strings.HasSuffix(name, "/") || strings.Contains(name, "//") || strings.HasPrefix(name, "/") {
		return failWith("NotImplemented", "What an empty part of a path means is not documented.")
	}
	if b := ct.blob(name); b != nil && b.directory() {
		return fail("ResourceTypeMismatch")
	}
	for _, above := range ancestors(name) {
		if b := ct.blob(above); b != nil && !b.directory() {
			return fail("ResourceTypeMismatch")
		}
	}
	return nil
}

// store stores a version of a blob and the directories above it, which outlive the blob:
// https://github.com/Azure/azure-sdk-for-python/issues/40061
func (s *Server) store(ct *container, b *blob) {
	if s.hierarchical {
		for _, name := range ancestors(b.Name) {
			if ct.blob(name) != nil {
				continue
			}
			d := &blob{Name: name, Metadata: packMetadata(map[string]string{folder: "true"}), Created: b.Modified, Modified: b.Modified}
			d.Version = s.state.nextVersion(b.Modified)
			s.state.putBlob(ct, d)
		}
	}
	s.state.putBlob(ct, b)
}

// checkHierarchy refuses a listing that such accounts don't support.
//
//   - "If you choose to use a delimiter, use only a forward slash", says
//     https://learn.microsoft.com/azure/storage/blobs/data-lake-storage-known-issues without naming the error.
//     The code is that for another parameter which such accounts don't support:
//     https://github.com/Azure/azure-sdk-for-net/issues/39388.
//   - "An error will occur in cases where the name of a file appears in the middle of the prefix path", says
//     https://learn.microsoft.com/rest/api/storageservices/list-blobs, also without naming it.
func (s *Server) checkHierarchy(ct *container, l listing) *answer {
	if !s.hierarchical {
		return nil
	}
	if l.delimiter != "" && l.delimiter != "/" {
		return failWith("InvalidQueryParameterValue", "Parameter: delimiter.")
	}
	for _, above := range ancestors(l.prefix) {
		if b := ct.blob(above); b != nil && !b.directory() {
			return failWith("InvalidQueryParameterValue", "Parameter: prefix.")
		}
	}
	return nil
}
