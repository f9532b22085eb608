package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

const (
	day     = 24 * time.Hour
	maxDays = math.MaxInt64 / day               // 292 years
	longest = math.MaxInt64 - math.MaxInt64%day // maxDays as a duration
)

// days is the value of a flag that is a duration, and may also be in days.
type days time.Duration

func (d *days) String() string {
	if *d == 0 {
		return "" // the help says what the default means
	}
	return time.Duration(*d).String()
}

// Type is the name of the value in the help.
func (*days) Type() string { return "duration" }

// Set reads a duration.
func (d *days) Set(text string) error {
	parsed, err := parseDays(text)
	if err != nil {
		return err
	}
	*d = days(parsed)
	return nil
}

// valueRange is what a flag with a number or a duration allows.
type valueRange struct {
	least, most int64 // a duration in nanoseconds
	text        string
}

const anyNumber = math.MaxInt64

var duration = "such as 90s, 8h or 2d, and at most " + strconv.Itoa(int(maxDays)) + "d"

// ranges has the flags of all commands that have a number or a duration, by their names.
var ranges = map[string]valueRange{
	"port":          {1, 65535, "a whole number from 1 to 65535"},
	"instances":     {1, math.MaxInt32, "a whole number from 1 to 2147483647"},
	"gpus":          {0, math.MaxInt32, "a whole number from 0 to 2147483647"},
	"min-available": {0, math.MaxInt32, "a whole number from 0 to 2147483647"},
	"limit":         {0, math.MaxInt32, "a whole number from 0 to 2147483647"},
	"fail-nth":      {0, math.MaxInt32, "a whole number from 0 to 2147483647"},
	"timeout":       {1, anyNumber, "a duration longer than 0s, " + duration},
	"lease":         {0, anyNumber, "a duration, " + duration + "; 0 for none"},
	"deploy-time":   {0, anyNumber, "a duration that is not negative, " + duration},
	"delete-time":   {0, anyNumber, "a duration that is not negative, " + duration},
	"create-delay":  {0, anyNumber, "a duration that is not negative, " + duration},
	"outage":        {0, anyNumber, "a duration that is not negative, " + duration},
	"clock-offset":  {-anyNumber, anyNumber, "a duration, " + duration + ", or -1h"},
}

// holds reports whether the range has the value of a flag.
func (r valueRange) holds(value pflag.Value) bool {
	var n int64
	if d, ok := value.(*days); ok {
		n = int64(*d)
	} else {
		n, _ = strconv.ParseInt(value.String(), 10, 64) // pflag has parsed it
	}
	return r.least <= n && n <= r.most
}

var errDays = errors.New("must be a duration, " + duration)

// parseDays reads a duration that may also be in days, such as 90d or 1d12h.
func parseDays(text string) (time.Duration, error) {
	var whole time.Duration
	if n, rest, ok := strings.Cut(text, "d"); ok {
		days, err := strconv.ParseUint(n, 10, 32)
		if err != nil || days > uint64(maxDays) || strings.ContainsAny(rest, "+-") {
			return 0, errDays
		}
		whole, text = time.Duration(days)*day, cmp.Or(rest, "0")
	}
	d, err := time.ParseDuration(text)
	if err != nil || d > longest-whole {
		return 0, errDays
	}
	return whole + d, nil
}

// count returns a number of instances in words.
func count[N ~int | ~int32 | ~int64](n N) string {
	if n == 1 {
		return "1 instance"
	}
	return fmt.Sprintf("%d instances", n)
}
