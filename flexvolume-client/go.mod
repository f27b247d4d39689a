module localvolume.dev/flexvolume-client

go 1.24
