package fuzz_test

// dice turns the bytes of the fuzzer into decisions. When they run out, all
// that follow are the first choice.
type dice []byte

func (d *dice) roll(n int) int {
	if len(*d) == 0 {
		return 0
	}
	b := (*d)[0]
	*d = (*d)[1:]
	return int(b) % n
}
