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
	HeadBlob               Op = "HeadBlob" // Get Blob Properties
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

	// need is what a client must be allowed.
	need need

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
	get, put := []string{http.MethodGet}, []string{http.MethodPut}
	del, post := []string{http.MethodDelete}, []string{http.MethodPost}
	read := []string{http.MethodGet, http.MethodHead}
	leased := []string{"x-ms-lease-id"}
	const account, container, blob = accountLevel, containerLevel, blobLevel
	reads, writes := need{types: "o", account: "r", container: "r"}, need{types: "o", account: "wc", container: "wc", write: true}
	// Each item of a batch needs its own permission.
	batches := need{types: "sco", account: anyPermission, container: anyPermission, write: true}
	return []operation{
		{
			op: ListContainers, level: account, methods: get, comp: "list", query: []string{"prefix", "marker", "maxresults", "include"},
			need: need{types: "s", account: "l"}, do: (*Server).listContainers,
		},
		{
			op: GetAccountInfo, level: account, methods: read, restype: "account", comp: "properties",
			need: need{types: "sco", account: anyPermission, outside: true}, do: (*Server).accountInfo,
		},
		{
			op: GetServiceProperties, level: account, methods: get, restype: "service", comp: "properties",
			need: need{types: "s", account: "r", outside: true}, do: (*Server).serviceProperties,
		},
		{ // signatures and keys can't ask for a key
			op: GetUserDelegationKey, level: account, methods: post, restype: "service", comp: "userdelegationkey",
			do: (*Server).userDelegationKey,
		},
		{op: BatchDelete, level: account, methods: post, comp: "batch", need: batches, do: (*Server).batch},

		{
			op: CreateContainer, level: container, methods: put, restype: "container", metadata: true,
			need: need{types: "c", account: "cw", write: true}, do: (*Server).createContainer,
		},
		{
			op: SetContainerMetadata, level: container, methods: put, restype: "container", comp: "metadata", headers: leased,
			metadata: true, need: need{types: "c", account: "w", write: true}, do: (*Server).setContainerMetadata,
		},
		{
			op: GetContainerProperties, level: container, methods: read, restype: "container", headers: leased,
			need: need{types: "c", account: "r"}, do: (*Server).containerProperties,
		},
		{
			op: DeleteContainer, level: container, methods: del, restype: "container", headers: leased,
			need: need{types: "c", account: "d", write: true}, do: (*Server).deleteContainer,
		},
		{
			op: LeaseContainer, level: container, methods: put, restype: "container", comp: "lease",
			headers: append(leased, "x-ms-lease-action", "x-ms-proposed-lease-id", "x-ms-lease-duration", "x-ms-lease-break-period"),
			need:    need{types: "c", account: "w", write: true}, do: (*Server).leaseContainer,
		},
		{
			op: ListBlobs, level: container, methods: get, restype: "container", comp: "list",
			query: []string{"prefix", "marker", "maxresults", "include", "delimiter", "startfrom"},
			need:  need{types: "c", account: "l", container: "l"}, do: (*Server).listBlobs,
		},
		{op: BatchDelete, level: container, methods: post, restype: "container", comp: "batch", need: batches, do: (*Server).batch},

		{
			op: PutBlob, level: blob, methods: put, metadata: true,
			headers: append(leased, "x-ms-blob-type", "x-ms-blob-content-md5", "x-ms-blob-content-type"),
			need:    writes, do: (*Server).putBlob,
		},
		{op: GetBlob, level: blob, methods: get, headers: append(leased, "x-ms-range"), need: reads, do: (*Server).getBlob},
		{op: HeadBlob, level: blob, methods: []string{http.MethodHead}, headers: leased, need: reads, do: (*Server).headBlob},
		{
			op: DeleteBlob, level: blob, methods: del, headers: append(leased, "x-ms-delete-snapshots"),
			need: need{types: "o", account: "d", container: "d", write: true}, do: (*Server).deleteBlob,
		},
	}
}
