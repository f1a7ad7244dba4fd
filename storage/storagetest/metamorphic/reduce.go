package metamorphic

import "slices"

// reduce returns a short list that still fails. It leaves out smaller and smaller runs of elements, then
// replaces elements by simpler ones. It calls fails about limit times. If the list does not fail again,
// because the failure depends on chance, reduce returns it unchanged.
func reduce[E any](list []E, limit int, fails func([]E) bool, simpler func(E) []E) []E {
	tries := 0
	try := func(candidate []E) bool {
		if tries++; tries > limit || !fails(candidate) {
			return false
		}
		list = candidate
		return true
	}
	for !try(list) {
		if tries == 5 {
			return list
		}
	}
	for size := max(len(list)/2, 1); ; size = max(size/2, 1) {
		shorter := false
		for at := 0; at < len(list); {
			if try(slices.Delete(slices.Clone(list), at, min(at+size, len(list)))) {
				shorter = true
			} else {
				at += size
			}
		}
		if size == 1 && !shorter || tries > limit {
			break
		}
	}
	for at := range list {
		for _, e := range simpler(list[at]) {
			candidate := slices.Clone(list)
			candidate[at] = e
			if try(candidate) {
				break
			}
		}
	}
	for again := 0; again < 5 && !fails(list); again++ { // the last failure must be that of this list
	}
	return list
}
