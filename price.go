package svc

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Price is an exact decimal number, kept as the text that the service sent:
// 0.1 stays 0.1. The zero value is a price that is not set, which is something
// else than a price of 0. Compare prices with [Price.Cmp]: to == the prices 3
// and 3.0 differ.
type Price struct{ text string }

// ParsePrice reads a decimal number as JSON writes it: "0.25", "3", "1e-7".
func ParsePrice(s string) (Price, error) {
	d, err := parseDecimal(s)
	if err != nil {
		return Price{}, fmt.Errorf("svc: price: %w", err)
	}
	if len(d.digits)+d.exp > maxPriceDigits {
		return Price{}, fmt.Errorf("svc: price: %w", errNumberRange)
	}
	return Price{s}, nil
}

// maxPriceDigits keeps every price within the range of a float64.
const maxPriceDigits = 308

// IsSet reports whether there is a price at all.
func (p Price) IsSet() bool { return p.text != "" }

// IsZero reports whether the price is not set, for the omitzero option of
// encoding/json. A price of 0 is set.
func (p Price) IsZero() bool { return p.text == "" }

// String returns the price in plain decimal notation, never in scientific
// notation, and "" if it is not set.
func (p Price) String() string {
	if !strings.ContainsAny(p.text, "eE") {
		return p.text
	}
	d, _ := parseDecimal(p.text) // checked when p was made
	return d.plain()
}

// Float64 returns the nearest float64, 0 if the price is not set.
func (p Price) Float64() float64 {
	f, _ := strconv.ParseFloat(p.text, 64) // 0 for ""
	return f
}

// Cmp compares by value: -1 if p is less than q, 0 if they are equal, +1 if p
// is greater. A price that is not set is less than any other.
func (p Price) Cmp(q Price) int {
	if p.text == q.text {
		return 0
	}
	if !p.IsSet() || !q.IsSet() {
		return cmp.Compare(len(p.text), len(q.text))
	}
	d, _ := parseDecimal(p.text)
	e, _ := parseDecimal(q.text)
	return d.cmp(e)
}

// MarshalJSON returns the price as a number, in the text it was read from, and
// null if it is not set.
func (p Price) MarshalJSON() ([]byte, error) {
	if !p.IsSet() {
		return []byte("null"), nil
	}
	return []byte(p.text), nil
}

// UnmarshalJSON accepts a number or a string that holds one; null and "" leave
// the price unset.
func (p *Price) UnmarshalJSON(b []byte) error {
	text, ok := numberText(b)
	if !ok {
		return typeError[Price](b)
	}
	if text == "" {
		*p = Price{}
		return nil
	}
	parsed, err := ParsePrice(text)
	if err != nil {
		return typeError[Price](b)
	}
	*p = parsed
	return nil
}

var (
	errNotNumber   = errors.New("not a decimal number")
	errNumberRange = errors.New("number out of range")
)

// Limits of a number's text: no figure of this service comes near them, and
// they keep a short text such as 1e999999999 from growing into gigabytes.
const (
	maxNumberText = 1024
	maxExponent   = 400
)

// decimal is the exact value ±digits × 10^exp. The digits have neither
// leading nor trailing zeros; the number 0 has none at all.
type decimal struct {
	neg    bool
	digits string
	exp    int
}

// parseDecimal reads s by the grammar of a JSON number.
func parseDecimal(s string) (decimal, error) {
	if len(s) > maxNumberText {
		return decimal{}, errNumberRange
	}
	rest, neg := strings.CutPrefix(s, "-")
	whole, rest := cutDigits(rest)
	if whole == "" || whole[0] == '0' && len(whole) > 1 {
		return decimal{}, errNotNumber
	}
	var frac string
	if after, ok := strings.CutPrefix(rest, "."); ok {
		if frac, rest = cutDigits(after); frac == "" {
			return decimal{}, errNotNumber
		}
	}
	var exp int
	if rest != "" {
		if rest[0] != 'e' && rest[0] != 'E' {
			return decimal{}, errNotNumber
		}
		unsigned := rest[1:]
		if unsigned != "" && (unsigned[0] == '+' || unsigned[0] == '-') {
			unsigned = unsigned[1:]
		}
		if digits, tail := cutDigits(unsigned); digits == "" || tail != "" {
			return decimal{}, errNotNumber
		}
		var err error
		if exp, err = strconv.Atoi(rest[1:]); err != nil || exp < -maxExponent || exp > maxExponent {
			return decimal{}, errNumberRange
		}
	}
	digits := strings.TrimLeft(whole+frac, "0")
	exp -= len(frac)
	trimmed := strings.TrimRight(digits, "0")
	if trimmed == "" {
		return decimal{}, nil
	}
	return decimal{neg, trimmed, exp + len(digits) - len(trimmed)}, nil
}

// cutDigits splits s after its leading ASCII digits.
func cutDigits(s string) (digits, rest string) {
	i := 0
	for i < len(s) && '0' <= s[i] && s[i] <= '9' {
		i++
	}
	return s[:i], s[i:]
}

// plain writes d without an exponent.
func (d decimal) plain() string {
	if d.digits == "" {
		return "0"
	}
	var sign string
	if d.neg {
		sign = "-"
	}
	point := len(d.digits) + d.exp // digits before the decimal point
	switch {
	case d.exp >= 0:
		return sign + d.digits + zeros(d.exp)
	case point > 0:
		return sign + d.digits[:point] + "." + d.digits[point:]
	default:
		return sign + "0." + zeros(-point) + d.digits
	}
}

func zeros(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = '0'
	}
	return string(b)
}

func (d decimal) sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.neg:
		return -1
	default:
		return 1
	}
}

func (d decimal) cmp(e decimal) int {
	if c := cmp.Compare(d.sign(), e.sign()); c != 0 || d.digits == "" {
		return c
	}
	c := cmp.Or(
		cmp.Compare(len(d.digits)+d.exp, len(e.digits)+e.exp), // the longer whole part
		strings.Compare(d.digits, e.digits),                   // else digit by digit
	)
	return c * d.sign()
}
