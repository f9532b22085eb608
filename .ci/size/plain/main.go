// Reads one record without the library.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
)

func main() {
	req, err := http.NewRequest(http.MethodGet, os.Getenv("SVC_BASE_URL")+"/v1/inference-service/svc-1", http.NoBody)
	if err != nil {
		log.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+os.Getenv("SVC_API_TOKEN"))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	var service struct {
		ServiceID string `json:"service_id"`
		Status    string `json:"status"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&service); err != nil {
		log.Panic(err)
	}
	fmt.Println(service.ServiceID, service.Status)
}
