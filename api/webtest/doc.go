// Package webtest holds no code but tests: a whole pharos serve is built and
// started, its OpenAPI document goes through a linter, and its pages are looked
// at with a real browser (package.json pins both). The scripts (*.spec.mjs) say
// what a page must be; Go owns the processes.
package webtest
