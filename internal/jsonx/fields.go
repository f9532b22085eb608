package jsonx

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// field is a struct field as encoding/json sees it.
type field struct {
	name   string
	typ    reflect.Type
	depth  int  // structs embedded around it
	tagged bool // the name comes from a tag
	quoted bool // the "string" option
}

type fields []field

// fieldsOf lists the fields of a struct and of the structs embedded in it.
func fieldsOf(t reflect.Type) fields {
	var all fields
	all.collect(t, 0, map[reflect.Type]bool{})
	return all
}

func (all *fields) collect(t reflect.Type, depth int, inside map[reflect.Type]bool) {
	if inside[t] {
		return // embeds itself
	}
	inside[t] = true
	defer delete(inside, t)
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		if tag == "-" {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if f.Anonymous && name == "" {
			embedded := f.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			if embedded.Kind() == reflect.Struct {
				all.collect(embedded, depth+1, inside)
				continue
			}
		}
		if !f.IsExported() {
			continue
		}
		*all = append(*all, field{
			name:   cmp.Or(name, f.Name),
			typ:    f.Type,
			depth:  depth,
			tagged: name != "",
			quoted: isScalar(f.Type) && slices.Contains(strings.Split(options, ","), "string"),
		})
	}
}

// find returns the field that a key of an object goes into: the one of that
// name, or else the first that differs in case only.
func (all fields) find(key string) (field, bool) {
	if f, ok := all.visible(func(name string) bool { return name == key }); ok {
		return f, true
	}
	return all.visible(func(name string) bool { return strings.EqualFold(name, key) })
}

// visible picks the field that hides the others: the one embedded least deep,
// among equals the one with a tag. Two that are equal in both hide each other.
func (all fields) visible(match func(name string) bool) (best field, ok bool) {
	found := false
	for _, f := range all {
		if !match(f.name) {
			continue
		}
		switch {
		case !found || f.depth < best.depth || f.depth == best.depth && f.tagged && !best.tagged:
			best, found, ok = f, true, true
		case f.depth == best.depth && f.tagged == best.tagged:
			ok = false
		}
	}
	return best, ok
}

func (f field) child(value json.RawMessage) child {
	if !f.quoted {
		return child{name: f.name, data: value, typ: f.typ}
	}
	// Only a struct can carry the option, so the value is decoded inside one.
	wrapper := reflect.StructOf([]reflect.StructField{{Name: "Value", Type: f.typ, Tag: `json:"value,string"`}})
	return child{name: f.name, data: nest([]string{"value"}, value), typ: wrapper, leaf: true}
}

// isScalar reports whether the "string" option means something to t.
func isScalar(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.String || reflect.Bool <= t.Kind() && t.Kind() <= reflect.Float64
}
