// Reads one record with the library.
package main

import (
	"context"
	"fmt"
	"log"

	"example.com/svc"
)

func main() {
	client, err := svc.NewClientFromEnv()
	if err != nil {
		log.Fatal(err)
	}
	service, err := client.InferenceServices.Get(context.Background(), "svc-1")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(service.ServiceID, service.Status)
}
