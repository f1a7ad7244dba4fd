package emulator

import "net/http"

// Op names an operation of the service.
type Op string

// The operations of the emulator. A [Rule] matches them and a [Request] in the log names them.
const (
	ListContainers         Op = "ListContainers"
	GetAccountInfo         Op = "GetAccountInfo"
	GetServiceProperties   Op = "GetServiceProperties"
	GetUserDelegationKey   Op = "GetUserDelegationKey"
	CreateContainer        Op = "CreateContainer"
	DeleteContainer        Op = "DeleteContainer"
	GetContainerProperties Op = "GetContainerProperties" // GET and HEAD
	SetContainerMetadata   Op = "SetContainerMetadata"
	LeaseContainer         Op = "LeaseContainer"
	ListBlobs              Op = "ListBlobs" // flat and by delimiter
	PutBlob                Op = "PutBlob"
	GetBlob                Op = "GetBlob"
	HeadBlob               Op = "HeadBlob"        // Get Blob Properties
	GetBlobMetadata        Op = "GetBlobMetadata" // GET and HEAD
	SetBlobMetadata        Op = "SetBlobMetadata"
	DeleteBlob             Op = "DeleteBlob"
	BatchDelete            Op = "BatchDelete" // a batch as a whole
	BatchItem              Op = "BatchItem"   // one delete within a batch
	Unsupported            Op = "Unsupported" // anything else
)

// operation describes an [Op]: how to recognize it, what it accepts, and how to execute it.
type operation struct {
	op Op

	// level, methods, restype and comp identify the operation.
	level   level
	methods []string
	restype string
	comp    string

	// query lists the query parameters that the operation accepts besides "timeout". Others are refused.
	query []string

	// headers lists the x-ms- headers that the operation accepts besides the common ones. Others are refused.
	headers []string

	// metadata reports whether the operation accepts x-ms-meta- headers.
	metadata bool

	// do executes the operation. The server's lock is held.
	do func(*Server, *call) *answer
}

// level is the kind of resource that a URL addresses.
type level int

const (
	accountLevel level = iota
	containerLevel
	blobLevel
)

// operations returns the table of all operations. The first matching row wins.
func operations() []operation {
	get, put, del, post := []string{http.MethodGet}, []string{http.MethodPut}, []string{http.MethodDelete}, []string{http.MethodPost}
	read := []string{http.MethodGet, http.MethodHead}
	leased := []string{"x-ms-lease-id"}
	const account, container, blob = accountLevel, containerLevel, blobLevel
	return []operation{
		{op: ListContainers, level: account, methods: get, comp: "list", query: []string{"prefix", "marker", "maxresults", "include"}, do: (*Server).listContainers},
		{op: GetAccountInfo, level: account, methods: read, restype: "account", comp: "properties", do: (*Server).accountInfo},
		{op: GetServiceProperties, level: account, methods: get, restype: "service", comp: "properties", do: (*Server).serviceProperties},
		{op: GetUserDelegationKey, level: account, methods: post, restype: "service", comp: "userdelegationkey", do: (*Server).userDelegationKey},
		{op: BatchDelete, level: account, methods: post, comp: "batch", do: (*Server).batch},

		{op: CreateContainer, level: container, methods: put, restype: "container", metadata: true, do: (*Server).createContainer},
		{op: SetContainerMetadata, level: container, methods: put, restype: "container", comp: "metadata", headers: leased, metadata: true, do: (*Server).setContainerMetadata},
		{op: GetContainerProperties, level: container, methods: read, restype: "container", headers: leased, do: (*Server).containerProperties},
		{op: GetContainerProperties, level: container, methods: read, restype: "container", comp: "metadata", headers: leased, do: (*Server).containerProperties},
		{op: DeleteContainer, level: container, methods: del, restype: "container", headers: leased, do: (*Server).deleteContainer},
		{
			op: LeaseContainer, level: container, methods: put, restype: "container", comp: "lease",
			headers: []string{"x-ms-lease-action", "x-ms-lease-id", "x-ms-proposed-lease-id", "x-ms-lease-duration", "x-ms-lease-break-period"},
			do:      (*Server).leaseContainer,
		},
		{
			op: ListBlobs, level: container, methods: get, restype: "container", comp: "list",
			query: []string{"prefix", "marker", "maxresults", "include", "delimiter", "startfrom"}, do: (*Server).listBlobs,
		},
		{op: BatchDelete, level: container, methods: post, restype: "container", comp: "batch", do: (*Server).batch},

		{
			op: PutBlob, level: blob, methods: put,
			headers: []string{
				"x-ms-blob-type", "x-ms-blob-cache-control", "x-ms-blob-content-disposition", "x-ms-blob-content-encoding",
				"x-ms-blob-content-language", "x-ms-blob-content-md5", "x-ms-blob-content-type", "x-ms-content-crc64",
				"x-ms-access-tier", "x-ms-lease-id",
			},
			metadata: true, do: (*Server).putBlob,
		},
		{op: SetBlobMetadata, level: blob, methods: put, comp: "metadata", headers: leased, metadata: true, do: (*Server).setBlobMetadata},
		{op: GetBlob, level: blob, methods: get, headers: []string{"x-ms-range", "x-ms-range-get-content-md5", "x-ms-lease-id"}, do: (*Server).getBlob},
		{op: HeadBlob, level: blob, methods: []string{http.MethodHead}, headers: leased, do: (*Server).headBlob},
		{op: GetBlobMetadata, level: blob, methods: read, comp: "metadata", headers: leased, do: (*Server).headBlob},
		{op: DeleteBlob, level: blob, methods: del, headers: []string{"x-ms-delete-snapshots", "x-ms-lease-id"}, do: (*Server).deleteBlob},
	}
}
