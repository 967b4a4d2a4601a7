package api

import "github.com/danielgtaylor/huma/v2"

// OpenAPI lets tests hold answers against the document.
func (a *API) OpenAPI() *huma.OpenAPI { return a.huma.OpenAPI() }

// Shelf lets tests see whether bodies are kept.
func (a *API) Shelf() any { return a.current() }

// Views counts the filtered views that are kept of the current generation.
func (a *API) Views() int { return a.current().views.order.Len() }
