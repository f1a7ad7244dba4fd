// Package catalogue is the form of a day's catalogue: what a listing tells of each plan, so arranged that a
// search reads little of it. It reads through a [Source].
//
// A catalogue consists of a header, a directory, postings and blocks:
//
//	header     magic, schema, length and checksum of the directory, checksum of the header
//	directory  the day's container, where each page of postings and each block is, and what is in it
//	postings   for each group, which blocks have its plans, and how many; in pages, sorted by group
//	blocks     the plans, newest first
//
// The plans of a block have one status. A status that few plans have therefore fills few blocks, and a search
// for the failed plans of a day reads little. Blocks are sorted by their newest plan, so all plans of a day are
// read from the front to the end; see [Merge]. Blocks are compressed column by column. A block has at most
// 2,000 plans: more would make a search by group read more than it needs, and fewer would make the directory
// long.
//
// If the postings are short they follow the directory, so that the first bytes of the catalogue answer most
// searches by group. Otherwise they follow the blocks, so that the first bytes have the newest plans.
//
// Every part has a checksum. A decoder checks it before it looks at the content, and allocates no more than
// the content can fill.
package catalogue
