package fuzz_test

// dice turns the fuzzer's bytes into random choices. After the last byte, every choice is
// 0.
type dice []byte

func (d *dice) roll(n int) int {
	if len(*d) == 0 {
		return 0
	}
	b := (*d)[0]
	*d = (*d)[1:]
	return int(b) % n
}
