// Prints, as JSON, the types that Go packages declare: of structs the fields, with their types and tags; of others what they are.
//
//	structs IMPORT-PATH=FOLDER...
package main

import (
	"encoding/json"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"log"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Type is a declared type: a struct with fields, or a name for another type.
type Type struct {
	Fields []Field `json:"fields"`
	Is     *Shape  `json:"is,omitempty"`
	Struct bool    `json:"struct"`
}

// Field is a field of a struct. An embedded one is named like its type.
type Field struct {
	Name     string `json:"name"`
	Embedded bool   `json:"embedded,omitempty"`
	Tag      string `json:"tag,omitempty"`
	Type     Shape  `json:"type"`
}

// Shape is a type as it is written: a pointer, list or map of others, or a name with the import path of its package.
type Shape struct {
	Form    string `json:"form"`
	Package string `json:"package,omitempty"`
	Name    string `json:"name,omitempty"`
	Key     *Shape `json:"key,omitempty"`
	Of      *Shape `json:"of,omitempty"`
}

// reader knows what names mean in a file.
type reader struct {
	here    string
	imports map[string]string
}

func (r reader) shape(node ast.Expr) *Shape {
	switch node := node.(type) {
	case *ast.Ident:
		if isBuiltin(node.Name) {
			return &Shape{Form: "name", Name: node.Name}
		}
		return &Shape{Form: "name", Package: r.here, Name: node.Name}
	case *ast.SelectorExpr:
		if from, ok := node.X.(*ast.Ident); ok {
			return &Shape{Form: "name", Package: r.imports[from.Name], Name: node.Sel.Name}
		}
	case *ast.StarExpr:
		return &Shape{Form: "pointer", Of: r.shape(node.X)}
	case *ast.ArrayType:
		return &Shape{Form: "list", Of: r.shape(node.Elt)}
	case *ast.MapType:
		return &Shape{Form: "map", Key: r.shape(node.Key), Of: r.shape(node.Value)}
	}
	return &Shape{Form: "other"}
}

func isBuiltin(name string) bool {
	switch name {
	case "bool", "byte", "error", "float32", "float64", "int", "int16", "int32", "int64", "int8", "rune", "string",
		"uint", "uint16", "uint32", "uint64", "uint8", "any":
		return true
	}
	return false
}

func (r reader) fields(node *ast.StructType) []Field {
	fields := []Field{}
	for _, field := range node.Fields.List {
		tag := ""
		if field.Tag != nil {
			tag, _ = strconv.Unquote(field.Tag.Value)
		}
		shape := r.shape(field.Type)
		if len(field.Names) == 0 {
			named := shape
			if named.Of != nil {
				named = named.Of
			}
			fields = append(fields, Field{Name: named.Name, Embedded: true, Tag: tag, Type: *shape})
		}
		for _, name := range field.Names {
			fields = append(fields, Field{Name: name.Name, Tag: tag, Type: *shape})
		}
	}
	return fields
}

// read adds the types that a file declares.
func read(here, file string, types map[string]Type) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	imports := map[string]string{}
	for _, imported := range parsed.Imports {
		from, _ := strconv.Unquote(imported.Path.Value)
		name := path.Base(from)
		if imported.Name != nil {
			name = imported.Name.Name
		}
		imports[name] = from
	}
	in := reader{here, imports}
	for _, declaration := range parsed.Decls {
		general, ok := declaration.(*ast.GenDecl)
		if !ok || general.Tok != token.TYPE {
			continue
		}
		for _, spec := range general.Specs {
			declared := spec.(*ast.TypeSpec)
			if fields, ok := declared.Type.(*ast.StructType); ok {
				types[declared.Name.Name] = Type{Fields: in.fields(fields), Struct: true}
			} else {
				types[declared.Name.Name] = Type{Is: in.shape(declared.Type)}
			}
		}
	}
	return nil
}

func main() {
	packages := map[string]map[string]Type{}
	for _, argument := range os.Args[1:] {
		here, folder, _ := strings.Cut(argument, "=")
		files, _ := filepath.Glob(filepath.Join(folder, "*.go"))
		types := map[string]Type{}
		for _, file := range files {
			built, err := build.Default.MatchFile(folder, filepath.Base(file))
			if err != nil {
				log.Fatal(err)
			}
			if !built || strings.HasSuffix(file, "_test.go") {
				continue
			}
			if err := read(here, file, types); err != nil {
				log.Fatal(err)
			}
		}
		packages[here] = types
	}
	if err := json.NewEncoder(os.Stdout).Encode(packages); err != nil {
		log.Fatal(err)
	}
}
