// Package interop has no code: its tests probe relay software that people run,
// started for the purpose, and see whether it is told right.
package interop
